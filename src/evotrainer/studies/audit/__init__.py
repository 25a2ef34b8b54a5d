"""Audits of anybody's rollouts: importers, traits, harness and kept results put together."""

from evotrainer.studies.audit.engine import Audit, Reading, SourceReport, audit, default_cache, digest

__all__ = ["Audit", "Reading", "SourceReport", "audit", "default_cache", "digest"]
