"""What a pass does, step by step: plain functions that take the store, the sources, the channels and the clock."""
