"""Every system by its name, in the order of the tables. A system is imported when it is first called."""

from importlib import import_module

from cases import Alarm, Case, System


def _late(name: str, module: str) -> System:
    def system(case: Case) -> list[Alarm]:
        return getattr(import_module(f"systems.{module}"), name)(case)

    return system


_HOMES = {
    "watchkeeper": "watchkeeper",
    "marin": "marin",
    "marin_scaled": "marin",
    "olmo_core": "olmo_core",
    "llm_foundry": "llm_foundry",
    "wandb_zscore": "wandb_zscore",
    "three_sigma": "three_sigma",
    "pelt": "pelt",
    "otava": "otava",
    "everything": "everything",
    "nothing": "nothing",
}
SYSTEMS: dict[str, System] = {name: _late(name, module) for name, module in _HOMES.items()}
