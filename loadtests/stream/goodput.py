"""Which requests were served well."""

from dataclasses import dataclass

from loadtests.stream.timing import Measures


@dataclass(frozen=True)
class Slo:
    """What a request must meet, in seconds; None asks for nothing.

    Attributes:
        ttft: longest time to the first token.
        tpot: longest time per token after the first.
        e2e: longest time to the last token.
    """

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    def __post_init__(self) -> None:
        """Checks the limits.

        Raises:
            ValueError: one of them is not positive.
        """
        for name, limit in (("ttft", self.ttft), ("tpot", self.tpot), ("e2e", self.e2e)):
            if limit is not None and not limit > 0:
                raise ValueError(f"SLO {name} is {limit}: it must be a positive number of seconds")

    def is_met(self, measures: Measures) -> bool:
        """Whether a request succeeded and kept every limit.

        One with a single token has no time per token and keeps that limit, as in `vllm bench serve`. One whose number
        of tokens is not known does not: nobody can say that it does.
        """
        if measures.error is not None:
            return False
        tpot = measures.tpot
        if tpot is None and measures.output_tokens is not None:
            tpot = 0.0
        pairs = ((self.ttft, measures.ttft), (self.tpot, tpot), (self.e2e, measures.e2e))
        return all(limit is None or (value is not None and value <= limit) for limit, value in pairs)
