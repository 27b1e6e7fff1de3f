"""Locust's events: options, workers that send their samples to the master, and one report at the end."""

import logging
import time
from typing import Any

import gevent
from locust import LoadTestShape, events
from locust.runners import STATE_MISSING, MasterRunner, WorkerRunner

from loadtests.options import (
    PROFILES,
    LoadProfile,
    add_options,
    check_options,
    files_of,
    origin_of,
    prompts_of,
    report_options,
    slo_of,
    without_credentials,
)
from loadtests.report import Result, report_of
from loadtests.server import ServerNotThereError, ServerUnderTest, counts_between
from loadtests.users import OpenLoop, Samples
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.engines.server_metrics import ServerMetrics
from vllm_spec_tools.report import write

logger = logging.getLogger(__name__)

# Messages between master and workers, and the key in Locust's own reports.
_FINISH, _FINAL, _KEY = "loadtest_finish", "loadtest_final", "loadtest"
# Seconds that workers have beyond --stop-timeout to send their last samples.
_WORKER_GRACE = 15.0
# Users and seconds of a load profile where Locust's -u and -t are not given.
_USERS, _SECONDS = 16, 120.0
# Users that may be started or stopped per second: the profile itself sets the pace.
_SPAWN_RATE = 100.0


class ProfileShape(LoadTestShape):
    """A load profile for Locust, with `-u` as the most users and `-t` as the time."""

    # Set by `--load-profile`; Locust must not choose it by itself.
    abstract = True
    use_common_options = True

    def __init__(self, profile: LoadProfile) -> None:
        """Sets the profile."""
        super().__init__()
        self._profile = profile

    def tick(self) -> tuple[int, float] | None:
        """The number of users and the spawn rate now; None ends the test."""
        assert self.runner is not None
        options: Any = self.runner.environment.parsed_options
        share = self.get_run_time() / float(options.run_time or _SECONDS)
        return (self._profile(options.num_users or _USERS, share), _SPAWN_RATE) if share < 1 else None


class LoadTest:
    """One load test, in the process that reports it: Locust's master, or its only process.

    Attributes:
        samples: of all users so far.
        missing: workers that have not sent their last samples.
    """

    current: "LoadTest | None" = None

    def __init__(self, environment: Any) -> None:
        """Finds the server's model and reads its metrics.

        Raises:
            UserError: an option or the file of prompts is invalid, or the server does not answer.
        """
        self._environment, self._options = environment, environment.parsed_options
        options = self._options
        check_options(options)
        if options.prompts:
            prompts_of("", options.prompts)
        self._server = ServerUnderTest(environment.host, options.api_key)
        # Workers get all options from the master, these included.
        options.model = options.model or self._server.first_model()["id"]
        options.rate_users = max(environment.runner.target_user_count or 0, 1)
        self._before = self._scrape()
        self._origin = origin_of(options, environment.host)
        self.samples = Samples.begin()
        self.missing = set(_clients(environment.runner))
        self._workers = len(self.missing)

    def collect(self) -> None:
        """Has all workers finish, and waits for their last samples."""
        runner = self._environment.runner
        runner.send_message(_FINISH)
        deadline = time.monotonic() + self._environment.stop_timeout + _WORKER_GRACE
        while self.missing and time.monotonic() < deadline:
            lost = {name for name, node in _clients(runner).items() if node.state == STATE_MISSING}
            if self.missing <= lost:
                break
            gevent.sleep(0.05)
        if self.missing:
            logger.error("the report lacks samples of %d workers: %s", len(self.missing), ", ".join(self.missing))
            self._environment.process_exit_code = 1

    def report(self) -> None:
        """Writes the reports that the options ask for, and logs the conclusion."""
        after = self._scrape()
        result = Result(
            model=self._options.model,
            host=without_credentials(self._environment.host),
            options=report_options(self._options),
            slo=slo_of(self._options),
            measures=self.samples.measures,
            sent=self.samples.sent,
            server=None if self._before is None or after is None else counts_between(self._before, after),
            workers=self._workers,
            missing_workers=len(self.missing),
        )
        report = report_of(result, self._origin)
        logger.info("%s", " ".join(report.conclusion))
        write(report, **vars(files_of(self._options)))

    def _scrape(self) -> ServerMetrics | None:
        """The metrics of the idle server; None if it has none."""
        try:
            return self._server.idle_metrics(within=5.0)
        except ServerNotThereError as error:
            logger.warning("%s", error)
            return None


def listen() -> None:
    """Registers the listeners of all events."""
    events.init_command_line_parser.add_listener(add_options)
    events.init.add_listener(_init)
    events.test_start.add_listener(_start)
    events.test_stop.add_listener(_stop)
    events.report_to_master.add_listener(_report_to_master)
    events.worker_report.add_listener(_worker_report)


def _init(environment: Any, runner: Any, **more: Any) -> None:
    # gevent's clock stood still during the imports: without this `--run-time` would include them.
    gevent.get_hub().loop.update_now()
    options = environment.parsed_options
    if isinstance(runner, WorkerRunner):
        # A worker keeps all user classes: the master alone knows --rate and the names of classes. Without users it
        # sends its last samples all the same.
        runner.register_message(_FINISH, lambda environment, msg, **more: environment.runner.stop(), concurrent=True)
        return
    if isinstance(runner, MasterRunner):
        runner.register_message(_FINAL, _take_final)
    if options.rate is not None:
        environment.user_classes = [OpenLoop]
        # At least one source per worker, so that all of them share the work.
        options.num_users = options.num_users or max(options.processes or 1, options.expect_workers or 1)
        options.spawn_rate = options.spawn_rate or _SPAWN_RATE
    else:
        environment.user_classes = [one for one in environment.user_classes if one is not OpenLoop]
    if options.load_profile:
        environment.shape_class = ProfileShape(PROFILES[options.load_profile])
        environment.shape_class.runner = runner


def _start(environment: Any, **more: Any) -> None:
    LoadTest.current = None
    Samples.begin()
    if isinstance(environment.runner, WorkerRunner):
        return
    try:
        LoadTest.current = LoadTest(environment)
    except UserError as error:
        logger.error("%s", error)
        environment.process_exit_code = 2
        # Locust calls this in a greenlet that `quit` kills first: called here, `quit` would end before the rest.
        gevent.spawn(environment.runner.quit).join()


def _stop(environment: Any, **more: Any) -> None:
    if isinstance(environment.runner, WorkerRunner):
        environment.runner.send_message(_FINAL, Samples.current.take())
    elif LoadTest.current is not None:
        if isinstance(environment.runner, MasterRunner):
            LoadTest.current.collect()
        LoadTest.current.report()


def _take_final(environment: Any, msg: Any, **more: Any) -> None:
    if LoadTest.current is not None:
        LoadTest.current.samples.merge(msg.data)
        LoadTest.current.missing.discard(msg.node_id)


def _report_to_master(client_id: str, data: dict[str, Any], **more: Any) -> None:
    data[_KEY] = Samples.current.take()


def _worker_report(client_id: str, data: dict[str, Any], **more: Any) -> None:
    if LoadTest.current is not None and _KEY in data:
        LoadTest.current.samples.merge(data[_KEY])


def _clients(runner: Any) -> dict[str, Any]:
    """A master's workers by name; nothing for another runner."""
    return dict(runner.clients) if isinstance(runner, MasterRunner) else {}
