"""What measures, trains, checks and explains; nothing that serves imports it."""
