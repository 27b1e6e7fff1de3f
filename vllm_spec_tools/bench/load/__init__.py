"""Compares arms in a closed loop: each level keeps N requests in flight."""
