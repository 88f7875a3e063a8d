"""Search for the slow node by pairs: rounds in which each node has a partner, and the judgement of their times."""

from collections.abc import Mapping, Sequence

from trainium_workloads.fabric.node import Finding

MOST_ROUNDS = 15
"""All pairs of up to 16 nodes; of more nodes so many partners each, which tell as much about a node."""

Pair = tuple[int, int]


def rounds(nodes: int) -> list[list[Pair]]:
    """Return rounds of disjoint pairs of nodes, by the circle method; with an odd number one node rests in each."""
    seats = [*range(nodes), *([-1] if nodes % 2 else [])]
    found = []
    for _ in range(min(len(seats) - 1, MOST_ROUNDS)):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        found.append([(min(pair), max(pair)) for pair in pairs if -1 not in pair])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return found


def judge(seconds: Mapping[Pair, float], limit: float, names: Sequence[str], what: str) -> list[Finding]:
    """Return the findings about nodes from the times of pairs, in which ``limit`` is the longest that keeps the floor,
    seconds.

    A node is slow when it has no fast pair although another pair is fast: two slow nodes do not hide each other.
    """
    nodes = sorted({node for pair in seconds for node in pair})
    fast = {node for pair, taken in seconds.items() if taken <= limit for node in pair}
    worst = max(seconds.values(), default=0.0)
    if len(nodes) == 2 and not fast:
        said = f"node {nodes[0]} ({names[nodes[0]]}) or node {nodes[1]} ({names[nodes[1]]}) is slow: a third node"
        return [Finding("pairs", False, f"{said} in the gang tells which")]
    if not fast:
        said = f"no pair of nodes reaches the floor in {what} (slowest {worst:.3g} s, limit {limit:.3g} s)"
        return [Finding("pairs", False, f"{said}: not one node, but a cause that all share")]
    slow = [node for node in nodes if node not in fast]
    best = {node: min(taken for pair, taken in seconds.items() if node in pair) for node in slow}
    if slow:
        return [
            Finding(
                "slow-node",
                False,
                f"node {node} ({names[node]}) is slow: {what} takes it {best[node]:.3g} s at best with any "
                f"other node, limit {limit:.3g} s; pairs without it take {min(seconds.values()):.3g} s",
                node,
            )
            for node in slow
        ]
    links = [pair for pair, taken in seconds.items() if taken > limit]
    if links:
        said = ", ".join(f"{a} ({names[a]}) and {b} ({names[b]})" for a, b in links)
        return [Finding("pairs", False, f"only between nodes {said} is {what} slow: the way between them")]
    return [Finding("pairs", False, f"each pair of nodes alone is fast in {what}: the whole gang together is slow")]
