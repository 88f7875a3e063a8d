"""Export of a file system's changed files to its S3 bucket, before the file system is deleted.

FSx deletes a linked file system without a backup. An export task copies the files changed since the last export; while
automatic export is on, FSx takes no such task, so it is switched off first (FSx API, DeleteFileSystem). A task in
progress makes FSx refuse the deletion, so the export is waited for.
"""

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.aws import sessions
from trainium_eks.operate.cleanup.state import StackState

ASSOCIATION = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"

UNDER_WAY = ("PENDING", "EXECUTING", "CANCELING")

LOOK_SECONDS = 15.0

REPORTS = ".fsx-export-reports"
"""Folder in the bucket for the lists of files that could not be exported."""

Json = Mapping[str, Any]
Say = Callable[[str], None]


class NotExportedError(Exception):
    """A failed export: the file system may hold data that its bucket lacks. The text names the reason and the mend."""


@dataclass(frozen=True)
class Patience:
    """Time limit of an export."""

    seconds: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def linked(state: StackState) -> tuple[str, ...]:
    """Return the ids of the stack's file systems that are linked to a bucket."""
    found = (str(each.inputs.get("fileSystemId") or each.outputs.get("fileSystemId") or "") for each in
             state.of_type(ASSOCIATION))  # fmt: skip
    return tuple(dict.fromkeys(each for each in found if each))


class Export:
    """The export of one file system."""

    def __init__(self, fsx: Any, region: str, file_system: str, say: Say, patience: Patience) -> None:
        self._fsx = fsx
        self._region = region
        self._file_system = file_system
        self._say = say
        self._patience = patience
        self._deadline = patience.now() + patience.seconds
        self._switched_off: list[Json] = []

    def run(self) -> None:
        """Export the changed files, and return when the bucket has every one.

        Automatic export stays off afterwards, until the link is deleted: :meth:`resume` gives the commands that switch
        it on. When files failed or AWS refused, it is on again before the error is raised; not when the time is over.
        """
        associations = self._associations()
        if not associations:
            self._say(f"{self._file_system} is linked to no bucket any more: there is nothing to export.")
            return
        try:
            self._switch_off(associations)
            self._await(
                "its link to be ready", lambda: {each["Lifecycle"] for each in self._associations()} <= {"AVAILABLE"}
            )
            self._await("the task that runs on it to end", lambda: not self._running())
            self._finish(self._start(str(associations[0]["DataRepositoryPath"])))
        except _TimeOverError as over:
            raise NotExportedError(
                f"{over} did not happen within {self._patience.seconds / 60:g} minutes; nothing was destroyed. "
                "The export continues in AWS.\n"
                "  Run it again, which waits for it, with more time (--export-minutes=600) or without it (--no-export)."
                f"\n{self.resume()}"
            ) from None
        except KeyboardInterrupt:
            self._say(
                f"\nStopped waiting; nothing was destroyed, and an export that has started continues.\n{self.resume()}"
            )
            raise
        except (NotExportedError, sessions.AwsError):
            self._switch_on()
            raise

    def resume(self) -> str:
        """Return the commands that switch automatic export on again; empty when no link was switched off."""
        commands = [
            shlex.join(
                [
                    *("aws", "fsx", "update-data-repository-association", "--region", self._region),
                    *("--association-id", each["AssociationId"]),
                    *("--s3", f"AutoExportPolicy={{Events=[{','.join(_events(each))}]}}"),
                ]
            )
            for each in self._switched_off
        ]
        if not commands:
            return ""
        return "\n    ".join([f"  Automatic export of {self._file_system} is off. To switch it on again:", *commands])

    def _associations(self) -> list[Json]:
        with sessions.saying(f"look at the links of {self._file_system}"):
            listed = self._all(self._fsx.describe_data_repository_associations, "Associations")
        found = [each for each in listed if each["Lifecycle"] != "DELETING"]
        for each in found:
            if each["Lifecycle"] in ("FAILED", "MISCONFIGURED"):
                reason = each.get("FailureDetails", {}).get("Message", "FSx does not say why")
                link = f"the link of {self._file_system} to {each['DataRepositoryPath']}"
                raise NotExportedError(
                    f"{link} is {each['Lifecycle']}: {reason}\n"
                    "  Mend it (FSx guide, troubleshooting a misconfigured data repository), or lose what the bucket "
                    "lacks with --no-export."
                )
        return found

    def _switch_off(self, associations: list[Json]) -> None:
        for each in associations:
            if _events(each):
                self._set(each, ())
                self._switched_off.append(each)

    def _switch_on(self) -> None:
        for each in self._switched_off:
            self._set(each, _events(each))
        if self._switched_off:
            self._say(f"Automatic export of {self._file_system} is on again.")
        self._switched_off = []

    def _set(self, association: Json, events: tuple[str, ...]) -> None:
        """Set the events that are exported automatically, and keep the import policy."""
        kept = {"AutoImportPolicy": policy} if (policy := association.get("S3", {}).get("AutoImportPolicy")) else {}
        with sessions.saying(f"change the automatic export of {self._file_system}"):
            self._fsx.update_data_repository_association(
                AssociationId=association["AssociationId"],
                S3={**kept, "AutoExportPolicy": {"Events": list(events)}},
            )

    def _running(self) -> bool:
        with sessions.saying(f"look at the tasks of {self._file_system}"):
            tasks = self._all(self._fsx.describe_data_repository_tasks, "DataRepositoryTasks")
        return any(each["Lifecycle"] in UNDER_WAY for each in tasks)

    def _all(self, ask: Callable[..., Json], key: str) -> list[Json]:
        """Return all pages of an answer about the file system; botocore has no paginator for these operations."""
        ours = [{"Name": "file-system-id", "Values": [self._file_system]}]
        found: list[Json] = []
        token = ""
        while True:
            page = ask(Filters=ours, **({"NextToken": token} if token else {}))
            found += page[key]
            token = page.get("NextToken", "")
            if not token:
                return found

    def _start(self, repository: str) -> str:
        """Start an export of all changed files, and return the task's id."""
        report = {
            "Enabled": True,
            "Format": "REPORT_CSV_20191124",
            "Scope": "FAILED_FILES_ONLY",
            "Path": f"{repository.rstrip('/')}/{REPORTS}",
        }
        with sessions.saying(f"export {self._file_system}"):
            answer = self._fsx.create_data_repository_task(
                Type="EXPORT_TO_REPOSITORY", FileSystemId=self._file_system, Report=report
            )
        return str(answer["DataRepositoryTask"]["TaskId"])

    def _finish(self, task: str) -> None:
        """Wait until the task has ended, and raise unless it wrote every file."""
        ended: list[Json] = []
        told = ""

        def is_over() -> bool:
            nonlocal told
            with sessions.saying(f"look at the export {task}"):
                [found] = self._fsx.describe_data_repository_tasks(TaskIds=[task])["DataRepositoryTasks"]
            status = found.get("Status") or {}
            done, total = status.get("SucceededCount", 0), status.get("TotalCount", 0)
            progress = f"Exporting {self._file_system}: {done:,} of {total:,} changed files."
            if progress != told:
                self._say(progress)
                told = progress
            if found["Lifecycle"] in UNDER_WAY:
                return False
            ended.append(found)
            return True

        self._await("the end of its export", is_over)
        _judge(ended[0], self._file_system)
        self._say(f"{self._file_system} is exported: its bucket has everything.")

    def _await(self, what: str, holds: Callable[[], bool]) -> None:
        while not holds():
            if self._patience.now() > self._deadline:
                raise _TimeOverError(f"{self._file_system}: {what}")
            self._patience.sleep(LOOK_SECONDS)


class _TimeOverError(Exception):
    """The deadline of a wait passed."""


def _events(association: Json) -> tuple[str, ...]:
    return tuple(association.get("S3", {}).get("AutoExportPolicy", {}).get("Events", ()))


def _judge(task: Json, file_system: str) -> None:
    """Raise :class:`NotExportedError` unless the ended task wrote every file."""
    failed = (task.get("Status") or {}).get("FailedCount", 0)
    if task["Lifecycle"] == "SUCCEEDED" and not failed:
        return
    reason = task.get("FailureDetails", {}).get("Message", "")
    where = (task.get("Report") or {}).get("Path", "")
    listed = f" They are listed in {where}/task-{task['TaskId']}/failures.csv." if failed and where else ""
    what = f"{failed:,} files were not written" if failed else f"it is {task['Lifecycle']}"
    raise NotExportedError(
        f"the export of {file_system}: {what}{f': {reason}' if reason else ''}.{listed}\n"
        "  Nothing was destroyed. Mend that and run it again, or lose what the bucket lacks with --no-export."
    )
