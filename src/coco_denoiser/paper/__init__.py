"""The paper and what goes beyond it: problems, optimizers, experiments, the page, the command.

It imports the library, which knows nothing of it. `pip install 'coco-denoiser[paper]'` brings
what the experiments need.
"""
