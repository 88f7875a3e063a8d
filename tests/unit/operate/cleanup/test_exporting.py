"""The export before a destroy: its order, its ends, and that nothing but the export is written."""

from datetime import UTC, datetime

import pytest
from aws_double import AwsDouble, AwsError
from cleanup_accounts import state

from trainium_eks.aws.account import READS
from trainium_eks.aws.sessions import AwsError as Refused
from trainium_eks.operate.cleanup.exporting import ASSOCIATION, Export, NotExportedError, Patience, linked

FILES = "fs-0123456789abcdef0"
LINK = "dra-0123456789abcdef0"
EVERY = ["NEW", "CHANGED", "DELETED"]


class Fsx:
    """A file system that is linked to a bucket, and its tasks."""

    def __init__(self, *lives, failed=0, before=(), lifecycle="AVAILABLE"):
        self.events = list(EVERY)
        self.lives = list(lives) or ["SUCCEEDED"]
        self.before = list(before)
        self.failed = failed
        self.lifecycle = lifecycle
        self.now = 0.0
        self.said: list[str] = []
        answers = {
            "DescribeDataRepositoryAssociations": self._associations,
            "UpdateDataRepositoryAssociation": self._update,
            "DescribeDataRepositoryTasks": self._tasks,
            "CreateDataRepositoryTask": self._create,
        }
        self.double = AwsDouble({f"fsx:{operation}": answer for operation, answer in answers.items()})

    def export(self, minutes=60):
        client = self.double.session().client("fsx", region_name="us-west-2")
        patience = Patience(minutes * 60, lambda: self.now, self._sleep)
        return Export(client, "us-west-2", FILES, self.said.append, patience)

    @property
    def written(self):
        asked = [(name.partition(":")[2], parameters) for name, parameters in self.double.asked]
        return [each for each in asked if not each[0].startswith(READS)]

    def _sleep(self, seconds):
        self.now += seconds

    def _associations(self, _):
        known = {"AssociationId": LINK, "FileSystemId": FILES, "DataRepositoryPath": "s3://data/prod"}
        policies = {"AutoExportPolicy": {"Events": self.events}, "AutoImportPolicy": {"Events": EVERY}}
        state = {"Lifecycle": self.lifecycle, "FailureDetails": {"Message": "the bucket is gone"}}
        return {"Associations": [{**known, **state, "S3": policies}]}

    def _update(self, asked):
        assert asked["S3"]["AutoImportPolicy"] == {"Events": EVERY}
        self.events = asked["S3"]["AutoExportPolicy"]["Events"]
        return {}

    def _task(self, lifecycle):
        succeeded = 3400 - self.failed if lifecycle in ("SUCCEEDED", "FAILED") else 1200
        return {
            "TaskId": "task-0123456789abcdef0",
            "Type": "EXPORT_TO_REPOSITORY",
            "Lifecycle": lifecycle,
            "CreationTime": datetime(2026, 11, 22, tzinfo=UTC),
            "Report": {"Enabled": True, "Path": "s3://data/prod/.fsx-export-reports"},
            "Status": {"TotalCount": 3400, "SucceededCount": succeeded, "FailedCount": self.failed},
        }

    def _tasks(self, asked):
        lives = self.lives if "TaskIds" in asked else self.before
        tasks = [self._task(lives[0])] if lives else []
        if len(lives) > 1 or lives is self.before:
            del lives[:1]
        return {"DataRepositoryTasks": tasks}

    def _create(self, _):
        if self.events:
            return AwsError("BadRequest", "automatic export is on")
        return {"DataRepositoryTask": self._task("PENDING")}


def test_automatic_export_is_off_during_and_after_the_task():
    fsx = Fsx("PENDING", "EXECUTING", "EXECUTING", "SUCCEEDED")
    export = fsx.export()
    export.run()
    (first, _), (second, asked) = fsx.written
    assert (first, second) == ("UpdateDataRepositoryAssociation", "CreateDataRepositoryTask")
    assert fsx.said == [
        f"Exporting {FILES}: 1,200 of 3,400 changed files.",
        f"Exporting {FILES}: 3,400 of 3,400 changed files.",
        f"{FILES} is exported: its bucket has everything.",
    ]
    assert "AutoExportPolicy={Events=[NEW,CHANGED,DELETED]}" in export.resume()
    # The whole file system, with a report inside the link.
    assert ("Paths" in asked, asked["Report"]["Path"]) == (False, "s3://data/prod/.fsx-export-reports")
    assert asked["Report"]["Scope"] == "FAILED_FILES_ONLY"
    # A task that runs is waited for before another is made.
    fsx = Fsx(before=("EXECUTING", "EXECUTING"))
    fsx.export().run()
    assert [name for name, _ in fsx.written].count("CreateDataRepositoryTask") == 1
    assert fsx.now == 30


@pytest.mark.parametrize(
    ("lives", "failed", "told"),
    [
        (("FAILED",), 2, r"2 files were not written.* listed in s3://data/prod/.fsx-export-reports/task-"),
        (("SUCCEEDED",), 1, "1 files were not written"),
        (("CANCELED",), 0, "it is CANCELED"),
    ],
)
def test_failed_files_stop_destroy_and_automatic_export_is_on_again(lives, failed, told):
    fsx = Fsx(*lives, failed=failed)
    export = fsx.export()
    with pytest.raises(NotExportedError, match=told):
        export.run()
    assert fsx.events == EVERY
    assert export.resume() == ""
    assert "is on again" in fsx.said[-1]


def test_stopped_wait_for_an_export_names_the_commands_to_continue():
    fsx = Fsx("EXECUTING")
    said = r"within 2 minutes; nothing was destroyed\. The export continues(.|\n)*fsx update-data-repository-assoc"
    with pytest.raises(NotExportedError, match=said):
        fsx.export(minutes=2).run()
    assert fsx.events == []  # FSx takes no export task while it is on
    assert 120 <= fsx.now <= 150

    def interrupt(_):
        raise KeyboardInterrupt

    fsx = Fsx("EXECUTING")
    fsx.double.answers["fsx:CreateDataRepositoryTask"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        fsx.export().run()
    assert "aws fsx update-data-repository-association" in fsx.said[-1]


def test_broken_link_stops_destroy_and_a_refusal_restores_the_export():
    fsx = Fsx(lifecycle="MISCONFIGURED")
    with pytest.raises(NotExportedError, match=r"s3://data/prod is MISCONFIGURED: the bucket is gone"):
        fsx.export().run()
    assert fsx.written == []
    fsx = Fsx()
    fsx.double.answers["fsx:CreateDataRepositoryTask"] = AwsError("AccessDeniedException", "not allowed")
    with pytest.raises(Refused, match="cannot export fs-"):
        fsx.export().run()
    assert fsx.events == EVERY
    # The file systems of a state are exported once each.
    link = (ASSOCIATION, LINK, {"fileSystemId": FILES})
    assert linked(state(link, (ASSOCIATION, "dra-2", {"fileSystemId": FILES}))) == (FILES,)
    assert linked(state(("aws:fsx/lustreFileSystem:LustreFileSystem", FILES, {}))) == ()
