"""What both locustfiles have in common: options, and a report at the end."""

import logging
from pathlib import Path
from typing import Any

import gevent
from locust import events
from locust.runners import MasterRunner, WorkerRunner

from loadtests import collector
from loadtests.options import add_options, slo_of
from loadtests.scenarios.prompts import read_prompts
from loadtests.writing import check_files, write

logger = logging.getLogger(__name__)


def wire() -> None:
    """Listens to the events of the test."""
    events.init_command_line_parser.add_listener(add_options)
    events.init.add_listener(_set_clock)
    events.test_start.add_listener(_begin)
    events.test_stop.add_listener(_end)


def _set_clock(**more: Any) -> None:
    """gevent's clock stood still while everything was imported: without this `--run-time` would include that time."""
    gevent.get_hub().loop.update_now()


def _begin(environment: Any, **more: Any) -> None:
    try:
        options = environment.parsed_options
        slo_of(options)
        check_files(options)
        if isinstance(environment.runner, MasterRunner | WorkerRunner) and (options.report or options.report_html):
            raise ValueError(
                "--report and --report-html need all users in one process; leave them out, or leave out --processes, "
                "--master and --worker"
            )
        if options.prompts:
            read_prompts(Path(options.prompts))
        collector.begin(environment)
    except (ValueError, collector.ServerNotThereError) as error:
        logger.error("%s", error)
        environment.process_exit_code = 2
        environment.runner.quit()


def _end(environment: Any, **more: Any) -> None:
    options = environment.parsed_options
    if collector.has_collector(environment) and (options.report or options.report_html):
        write(collector.collector_of(environment).result(options), options)
