"""The interactive page: SGD in the plane, alone, averaged and denoised, on the same noise."""
