"""Deciding in the scheduler what is drafted and what is kept."""
