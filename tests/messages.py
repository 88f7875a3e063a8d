"""The form of every message: a clause with its verb, a place, and what mends it. Its wording is free."""

import re

_NO_SUBJECT = re.compile(
    r"(not|no longer|is|are|has|have|must|need|more|less|fewer|longer|expected|required|unknown|given|empty|off|out|"
    r"counted|neither|none|false|null|true|overlaps|means|starts|differs|also|newer|older|already|under|over)\b"
)
_VERB = re.compile(
    r"\b(is|are|was|were|be|been|has|have|had|must|may|can|cannot|could|would|will|does|do|did|"
    r"[a-z]{2,}s|went|came|got|gave|made|took|ran|ended|fit|come|go|get|give|take|make|hold|keep|need|stay|let|"
    r"support|change|cover|lead|belong|bypass|ask|count|decide|lie|name|reach|read|run|start|stop|wait|work)\b"
)

_ABSENT = re.compile(
    r"\b(not (offered|sold|available|an AWS)|(AWS|EC2|EKS|ECR|FSx|SageMaker|Amazon [\w ]+) (has|offers|runs|sells) "
    r"(no|none)|(AWS|EC2|EKS|FSx|SageMaker) does not (have|know|offer|run|sell)|that (AWS|EC2|EKS) (runs|offers|has))\b"
)
"""Words that say of AWS what only our tables say: they age, and AWS gets new versions, types, zones and regions."""


def fault_of(problem):
    """Return what is wrong with the form of a message, or an empty text."""
    reason = re.sub(r"`[^`]*`|(?<!\w)'[^']*'", "X", problem.reason)
    if _ABSENT.search(reason):
        return "AWS may have it by now: say what this release or its catalogue does not know"
    if _NO_SUBJECT.match(reason) or not _VERB.search(reason):
        return "the reason is no clause with a subject and a verb (it is ..., EKS takes ...)"
    if problem.good is None and not problem.fix and not problem.allowed:
        return "nothing says what mends it: give `good`, `fix` or `allowed`"
    return ""
