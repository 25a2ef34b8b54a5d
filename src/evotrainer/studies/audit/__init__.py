"""Audits of anybody's rollouts: importers, traits, harness and kept results put together."""

from evotrainer.studies.audit.engine import RolloutAudit, SourceReport, SubjectReading, audit, default_cache
