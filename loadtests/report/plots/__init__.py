"""The report's plots: each is drawn into a figure, and becomes SVG within the page."""
