# SPDX-License-Identifier: Apache-2.0
"""What the metrics listener tells of requests."""

from werkzeug.test import Client

from gpuservice.api.metrics import RequestMetrics


def test_requests_are_counted_by_route_and_status():
    metrics = RequestMetrics()
    for status in (200, 200, 404):
        metrics.observe("/jobs/<id>", "GET", status, 0.004)
    text = Client(metrics.wsgi()).get("/metrics").text
    ok = 'gpuservice_api_requests_total{method="GET",route="/jobs/<id>",status="200"} 2.0'
    assert ok in text
    assert 'gpuservice_api_request_seconds_count{method="GET",route="/jobs/<id>"} 3.0' in text


def test_two_applications_in_one_process():
    assert RequestMetrics().registry is not RequestMetrics().registry
