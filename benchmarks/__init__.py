"""What the repository measures of itself; not in the wheel."""
