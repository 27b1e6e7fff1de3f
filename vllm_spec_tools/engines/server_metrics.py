"""Reads a server's `/metrics`: the only module that parses Prometheus' text format."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

_NOT_TOTALS = ("_bucket", "_created")


class ExpositionError(ValueError):
    """The text is not Prometheus' text format; str() says what is wrong."""


@dataclass(frozen=True)
class ServerMetrics:
    """The samples of one scrape.

    Attributes:
        totals: values by sample name, summed over labels: all engines and models of the server together. Histogram
            buckets and creation times are left out.
    """

    totals: Mapping[str, float]
    samples: tuple[tuple[str, Mapping[str, str], float], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "ServerMetrics":
        """Parses the body of a response to `GET /metrics`.

        Raises:
            ExpositionError: the text is something else.
        """
        try:
            families = list(text_string_to_metric_families(text))
        except (ValueError, KeyError, IndexError) as error:
            raise ExpositionError(f"/metrics does not answer in Prometheus' text format: {error}") from None
        found = [sample for family in families for sample in family.samples if not sample.name.endswith(_NOT_TOTALS)]
        totals = defaultdict[str, float](float)
        for sample in found:
            totals[sample.name] += sample.value
        return cls(dict(totals), tuple((sample.name, sample.labels, sample.value) for sample in found))

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Values of one metric by a label's values, summed over the other labels."""
        found = defaultdict[str, float](float)
        for sample, labels, value in self.samples:
            if sample == name:
                found[labels.get(label, "")] += value
        return dict(found)

    def increase(self, before: "ServerMetrics", name: str) -> float | None:
        """Growth of a counter since an earlier scrape; None if the server does not export it.

        A counter below its earlier value started again: the server was restarted, and its present value is the growth.
        """
        now = self.totals.get(name)
        if now is None:
            return None
        earlier = before.totals.get(name, 0.0)
        return now - earlier if now >= earlier else now
