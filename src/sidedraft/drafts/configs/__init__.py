"""Draft configs: three formats in, one `DraftConfig` out."""

from sidedraft.drafts.configs.draft_config import BackboneConfig, DraftConfig, MarkovConfig, RopeConfig
from sidedraft.drafts.configs.reader import read_config

__all__ = ["BackboneConfig", "DraftConfig", "MarkovConfig", "RopeConfig", "read_config"]
