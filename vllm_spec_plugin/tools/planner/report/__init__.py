"""The plan as people read it: sections, in a terminal and as Markdown, a picture, and JSON."""
