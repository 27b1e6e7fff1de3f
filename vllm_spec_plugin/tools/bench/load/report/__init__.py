"""What a sweep found, for people and for programs."""
