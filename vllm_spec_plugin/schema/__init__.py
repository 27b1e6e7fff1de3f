"""Building blocks of configuration sections."""
