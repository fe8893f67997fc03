"""Models of the gradients in a window, besides the paper's."""
