# SPDX-License-Identifier: Apache-2.0
"""What the API says of itself to Prometheus: requests by route and status, and their time."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, make_wsgi_app

#: Seconds: from an indexed read to a long wait for logs (at most 20 s).
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0)


class RequestMetrics:
    """Counts the requests of one process.

    :param registry: where the metrics are kept; a new one by default, so that several
        applications in one process do not collide.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._requests = Counter(
            "gpuservice_api_requests",
            "Requests by route, method and status.",
            ("route", "method", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "gpuservice_api_request_seconds",
            "Time of requests by route and method.",
            ("route", "method"),
            buckets=BUCKETS,
            registry=self.registry,
        )

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request (the ``observe`` of ``api.app.create_app``)."""
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route, method).observe(seconds)

    def wsgi(self) -> Any:
        """The application of the metrics listener."""
        return make_wsgi_app(self.registry)
