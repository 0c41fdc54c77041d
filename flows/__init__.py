"""Everything that touches the world: sources, the store, channels, pages, and the Prefect flows that join them."""
