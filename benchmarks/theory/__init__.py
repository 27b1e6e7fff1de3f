"""What Leviathan et al. (2023) derive about speculative decoding, and the same with measured costs."""
