"""The page to play with: SGD or Adam in the plane, with COCO and without, on the same noise."""
