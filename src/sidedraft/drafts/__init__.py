"""Draft models: one file a family, plain functions of tensors, loaded from three checkpoint formats."""

from sidedraft.drafts.base import Context, Draft, DraftShape, Family, Layout, Proposal
from sidedraft.drafts.configs import DraftConfig, read_config
from sidedraft.drafts.errors import CheckpointError
from sidedraft.drafts.pack import pack
from sidedraft.drafts.registry import load_draft

__all__ = [
    "CheckpointError",
    "Context",
    "Draft",
    "DraftConfig",
    "DraftShape",
    "Family",
    "Layout",
    "Proposal",
    "load_draft",
    "pack",
    "read_config",
]
