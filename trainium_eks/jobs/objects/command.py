"""The command of a job's containers: a few lines of shell that check preconditions and run the launcher.

The shell stays the container's first process and passes SIGTERM on. The first process of a container is not ended by a
signal that it does not handle, and torchrun handles SIGTERM only once its ranks run: while the nodes wait for each
other, it would be killed after the whole grace period (decision 37).
"""

import json
import shlex
from dataclasses import dataclass

from trainium_eks.jobs.objects.job import C10D, DATA, REFUSED, CompileCache, TrainingJob

PORT = 29500
"""Port of the rendezvous, on node 0: the default of torchrun and of TorchX."""

WATCH_PORT = 29499
"""Port where the nodes meet that watch torchrun, on node 0."""

STAY_SECONDS = 60
"""Longest stay of node 0 after another node's failure, until Volcano restarts the gang (decision 97)."""

_BLIND_STAY_SECONDS = 15
"""Stay of all nodes but node 0 after any failure, in an image that cannot tell which node failed first."""

ROLL_CALL_SECONDS = 1800
"""Time that the nodes of a gang wait for each other. Pods start minutes apart where one node has the image and another
must pull 10 GB, and each that gives up costs a retry of the whole gang."""

ATTEMPT = "TRN_ATTEMPT"
"""Variable that differs each time the gang starts."""

REFUSAL_FILE = "TRN_REFUSED"
"""Variable: the file that a rank makes before it ends with exit code 78 (``trainium_workloads.training.refusal``)."""


NODE_RANK = "TRN_NODE_RANK"
"""Variable with the node's number, where a label of the pod has it."""

RETRYABLE = 138
"""Exit code after which the Training Operator replaces a pod; it takes codes below 128 for final, where programs' own
faults are (its ``IsRetryableExitCode``; its documentation leaves 138 to users)."""


@dataclass(frozen=True)
class RankWords:
    """A container's place in the gang, as shell words."""

    node_rank: str
    """``3``, or ``$VC_TASK_INDEX``."""
    rank0_host: str
    """Name of node 0's host; on node 0 itself ``localhost``."""
    finding: tuple[str, ...] = ()
    """Lines that set ``host`` to node 0's name for all nodes, where that is ``rank0_host``."""


def place_of_task(node: int) -> RankWords:
    """Return the place in TorchX's shape, where each node is a separate task and node 0 is known by a variable of
    either kind."""
    variable = "VC_TRAINER_0_HOSTS" if node else "TORCHX_RANK0_HOST"
    return RankWords(str(node), rank0_host(variable))


def rank0_host(variable: str) -> str:
    """Return shell for the host in a variable. Without it each node would take itself for node 0 and wait for ever."""
    return "${" + variable + ":?is set by the svc plugin of Volcano}"


_HOST = "$host"

ONE_TASK = RankWords(
    "${VC_TASK_INDEX:?is set by the env plugin of Volcano}",
    _HOST,
    ('host="${VC_TRAINER_HOSTS:?is set by the svc plugin of Volcano}"', "host=${host%%,*}"),
)
"""Place in the shape of one task with a pod for each node."""


def place_by_label(first: str) -> RankWords:
    """Return the place where :data:`NODE_RANK` gives the node's number."""
    return RankWords(f"${{{NODE_RANK}:?is set from a label of the pod}}", _HOST, (f"host={first}",))


def shell(job: TrainingJob, place: RankWords) -> str:
    """Return the script for ``bash -c``."""
    named = [f"export {REFUSAL_FILE}=$(mktemp -u)"] if job.launcher == "torchrun" else []
    lines = _on_node_0(place, [*_checks(job), *(_gate(job) if job.kind == "train" else [])])
    lines += place.finding if job.nodes > 1 else ()
    watched = job.launcher == "torchrun" and job.form == "volcano"
    lines += _watch(job, place) if watched else ["set --"] if job.kind == "compile" else []
    if job.nodes > 1 and place.finding and job.launcher == "torchrun":
        lines.append(f'[ "{place.node_rank}" != 0 ] || host=localhost')
    launch = _launch(job, place)
    lines += _compile(job, place, launch) if job.kind == "compile" else [f'"$@" {launch}' if watched else launch]
    stays = [f'[ "$code" = 0 ] || [ -n "$asked$watched" ] || [ "{place.node_rank}" = 0 ] || {_BLIND_STAY}']
    faults = _faults(job, place) if job.form == "pytorchjob" else []
    refused = [REFUSAL] if named else []
    ends = [*WAIT, *refused, *(stays if watched and job.nodes > 1 else []), *faults, 'exit "$code"']
    return "\n".join([*SIGNALS, *named, *lines[:-1], f"{lines[-1]} &", *ends])


# `$!` is the launcher, and nothing before it begins. A variable would be set by the next command, and a signal may come
# between the two: bash would end, and leave the launcher behind.
SIGNALS = ["""trap '[ -n "$!" ] || exit 143; again=1; asked=1; kill -TERM "$!" 2>/dev/null' TERM"""]
WAIT = [
    "again=1",
    # A signal ends `wait` before the child has ended: it runs once more.
    'while [ -n "$again" ]; do again=; wait "$!"; code=$?; done',
]

REFUSAL = f'[ ! -e "${REFUSAL_FILE}" ] || code={REFUSED}'
"""Turns a rank's refusal file into its exit code: torchrun ends with 1 for any code of its ranks."""
_BLIND_STAY = f'{{ sleep {_BLIND_STAY_SECONDS} & wait "$!"; }}'


def _faults(job: TrainingJob, place: RankWords) -> list[str]:
    """Return lines that restart after a fault, until there have been ``retries`` of them. The Training Operator does
    not count (v1.9.3, ``PastBackoffLimit``: restarts of containers, and it makes new pods), so the nodes do, on the
    volume."""
    fault = f"0|{REFUSED}|143) ;;"
    if not job.output:
        return [f'case "$code" in {fault} *) code={RETRYABLE};; esac']
    message = f"fault $faults of this node; --retries {job.retries}: the job ends"
    return [
        '[ -z "$asked" ] || code=143',
        f'case "$code" in {fault}',
        "*)",
        f'  counted="{job.output}/.faults-{job.submission}-{place.node_rank}"',
        '  faults=$(($(cat "$counted" 2>/dev/null || echo 0) + 1))',
        f'  mkdir -p {job.output} && echo $faults > "$counted"',
        f"  code={RETRYABLE}",
        f'  [ $faults -lt {job.retries} ] || {{ echo "{message}" >&2; code={REFUSED}; }};;',
        "esac",
    ]


def _on_node_0(place: RankWords, lines: list[str]) -> list[str]:
    """Return lines that run on node 0 alone: the others wait for it, and the job ends with its message, not with the
    message of a pod that is removed before it can speak."""
    return [f'if [ "{place.node_rank}" = 0 ]; then', *(f"  {line}" for line in lines), "fi"] if lines else []


def _checks(job: TrainingJob) -> list[str]:
    """Return lines that end the job with a message for each condition that no restart can mend."""
    tests = [
        (
            f"[ -e {shlex.quote(f'{DATA}/{path}')} ]",
            f"{path} is not on the shared volume; bring it: trn stage SOURCE --to {path}",
        )
        for path in job.options.data
    ]
    if job.program.script:
        script = shlex.quote(job.program.script)
        tests.append((f"[ -f {script} ]", f"there is no script {job.program.script} in {job.image}"))
    if job.node_config > 1:
        message = (
            f"there is no trainium_workloads.ultraserver in {job.image}; --image names one with it, or leave --tier"
        )
        tests.append((_looks_for("trainium_workloads.ultraserver", True), message))
    if job.backend == "neuron":
        # transformers' TrainingArguments, for one, sets its devices up by torch_xla wherever that can be imported.
        message = f"{job.image} has torch_xla, which libraries prefer to TorchNeuron; --image names one without it"
        tests.append((_looks_for("torch_xla", False), message))
    return [f"{test} || {{ echo {shlex.quote(message)} >&2; exit {REFUSED}; }}" for test, message in tests]


def _looks_for(package: str, found: bool) -> str:
    """Return a shell test that the image's Python has a package or lacks it; imports of such packages take seconds."""
    ends = "is" if found else "is not"
    return f"""python3 -c 'import importlib.util as util; exit(util.find_spec("{package}") {ends} None)'"""


def _launch(job: TrainingJob, place: RankWords) -> str:
    """Return the launcher with its options, the program and its arguments."""
    program = [job.program.script] if job.program.script else ["-m", job.program.module]
    options = _torchrun(job, place) if job.launcher == "torchrun" else _gang(job, place)
    return f"{options} {shlex.join([*program, *job.program.arguments])}"


def _torchrun(job: TrainingJob, place: RankWords) -> str:
    identity = job.name
    if job.nodes > 1 and job.node_config > 1:
        rendezvous = ""  # the gang launcher says where, and which node this is
    elif job.nodes == 1:
        rendezvous = "--rdzv_backend c10d --rdzv_endpoint localhost:0"
    elif job.rendezvous == C10D:
        rendezvous = f'--rdzv_backend c10d --rdzv_endpoint "{place.rank0_host}":{PORT}'
    else:
        rendezvous = f"--rdzv_backend etcd-v2 --rdzv_endpoint {shlex.quote(job.rendezvous)}"
        # etcd remembers that a rendezvous was closed, so the same name would not do for a gang that starts again.
        identity = f'{job.name}"-${{{ATTEMPT}:-0}}"'
    waits = f"--rdzv_conf join_timeout={ROLL_CALL_SECONDS},read_timeout={ROLL_CALL_SECONDS}"
    size = f"--nnodes {job.nodes} --nproc_per_node {job.ranks_per_node} --max_restarts {job.options.max_restarts}"
    words = filter(None, ("torchrun", rendezvous, f"--rdzv_id {identity}", waits, size, "--tee 3 --role ''"))
    return " ".join(words)


def _watch(job: TrainingJob, place: RankWords) -> list[str]:
    """Return lines that set the positional parameters to the program that watches torchrun, if the image has it."""
    module = "ultraserver" if job.node_config else "gang"
    found = f"python3 -c 'import trainium_workloads.{module}' 2>/dev/null"
    in_place = f" --in_place {job.options.max_restarts}" if job.options.max_restarts else ""
    watch = f"{_gang(job, place, WATCH_PORT)}{in_place} --launcher"
    return ["set --", "watched=", f"if {found}; then watched=1; set -- {watch}; fi"]


def _gang(job: TrainingJob, place: RankWords, port: int = PORT) -> str:
    """Return the gang launcher's words, with node 0's name: it listens at the address that the others know it by."""
    host = place.rank0_host if place.finding else f"${{VC_TRAINER_0_HOSTS:-{place.rank0_host}}}"
    endpoint = f'"{host}":{port}' if job.nodes > 1 else f"localhost:{port}"
    size = f'--nnodes {job.nodes} --nproc_per_node {job.ranks_per_node} --node_rank "{place.node_rank}"'
    words = f"python3 -m trainium_workloads.gang --rdzv_endpoint {endpoint} --rdzv_id {job.name} {size}"
    words += f" --node_config {job.node_config}" if job.node_config else ""
    if job.form != "volcano":
        return words
    record = f" --record {job.output}/.failed-starts" if job.output else ""
    return f"{words} --stay {STAY_SECONDS} --failed_starts {job.options.failed_starts}{record}"


_HAS_WORKLOADS = "python3 -c 'import trainium_workloads' 2>/dev/null"
_CACHE = f"python3 -m trainium_workloads.compile_cache {{verb}} --root {DATA}/compile-cache"


def _cache_command(cache: CompileCache, verb: str) -> str:
    options = json.dumps(dict(cache.options), sort_keys=True)
    return f"{_CACHE.format(verb=verb)} --key {shlex.quote(cache.key)} --options {shlex.quote(options)}"


def _gate(job: TrainingJob) -> list[str]:
    """Return lines that end a training unless its compile cache is complete: 64 processes that compile take hours."""
    if job.cache is None:
        return []
    return [f"if {_HAS_WORKLOADS}; then {_cache_command(job.cache, 'check')} || exit {REFUSED}; fi"]


def _compile(job: TrainingJob, place: RankWords, launch: str) -> list[str]:
    """Return lines that compile, with the launch as the last. Node 0 is the cache's writer, and the others join it:
    all of them compile into one directory, which is read only after the last has finished; otherwise there is nothing
    to do."""
    launch = f'"$@" {"neuron_parallel_compile " if job.backend == "xla" else ""}{launch}'
    if job.cache is None:
        return [launch]
    words = {verb: f'set -- "$@" {_cache_command(job.cache, verb)} --job {job.name} --' for verb in ("run", "join")}
    is_first = f'[ "{place.node_rank}" = 0 ]'
    chosen = f"if {is_first}; then {words['run']}; else {words['join']}; fi"
    return [f"if {_HAS_WORKLOADS}; then {chosen}; fi", launch]
