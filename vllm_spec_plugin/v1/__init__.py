"""Code that only vLLM's V1 runner needs: drafts in the worker, the plugin's verification, trees, rollback. Frozen."""
