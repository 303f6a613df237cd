"""Draft models: one file a family, plain functions of tensors, loaded from three checkpoint formats."""

from sidedraft.drafts.base import Context, Draft, DraftShape, Family, Layout, Proposal
from sidedraft.drafts.configs import DraftConfig, read_config
from sidedraft.drafts.errors import CheckpointError
from sidedraft.drafts.pack import pack
from sidedraft.drafts.projection import ContextProjection, load_projection
from sidedraft.drafts.registry import load_draft

__all__ = [
    "CheckpointError",
    "Context",
    "ContextProjection",
    "Draft",
    "DraftConfig",
    "DraftShape",
    "Family",
    "Layout",
    "Proposal",
    "load_draft",
    "load_projection",
    "pack",
    "read_config",
]
