"""Calendars of Capacity Blocks in simulated time, with one long training: EC2, EKS and Auto Scaling as their guides
describe them; the stack's scheduled actions and the training's requests to stop as they are.

    PYTHONPATH=.:tests:workloads .venv/bin/python tests/block_calendars.py [CALENDARS]

A calendar has up to three blocks in a row in one group, each extended up to twice. Deliveries are late; ``pulumi up``
knows an extension before EC2 or hours later, and the next block before its start or after; EKS moves its own scheduled
action after an extension, or leaves it, which its guide does not say.
"""

import heapq
import os
import random
import sys
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from trainium_workloads import stopping
from trainium_workloads.stopping import CAPACITY_ENDS, CAPACITY_FILE, CAPACITY_MARGIN, Stopping

from trainium_eks.jobs.objects.environment import _ULTRASERVER_MARGIN_SECONDS
from trainium_eks.model.sizing.block_times import BlockTimes
from trainium_eks.model.validation.formats import utc_text

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
NOON = datetime(2027, 1, 4, 11, 30, tzinfo=UTC).timestamp()
"""The time of day at which blocks end."""


def moment(seconds):
    return datetime.fromtimestamp(seconds, UTC)


class Calendar:
    """One group, its blocks and its training. ``idle`` has the seconds of each stretch in which a node does something:
    ``start`` and ``end`` come from the stack, ``late`` from edits, ``old action`` from EKS; others are unavoidable."""

    def __init__(self, chance, file):
        self.chance, self.file, self.now = chance, file, 0.0
        self.events, self.order, self.idle, self.lost, self.ends = [], count(), defaultdict(list), 0, 0
        self.is_ultraserver, self.moves_action = chance.random() < 0.25, chance.random() < 0.7
        self.nodes, self.step, self.save = chance.randint(1, 64), chance.uniform(5, 90), chance.uniform(5, 240)
        self.doing, self.since, self.desired, self.actions, self.joined = "aws", 0.0, 0, {}, False
        self.block = self.process = self.known = None
        self.blocks, free = [], NOON
        for number in range(chance.choice((1, 2, 2, 3))):
            starts = free + chance.uniform(1, 30) * HOUR
            ends = NOON + DAY * ((starts - NOON) // DAY + chance.randint(2, 5))
            block = SimpleNamespace(starts=starts, ends=ends, steps=0)
            self.blocks.append(block)
            is_late = number and chance.random() < 0.1
            known = starts + chance.uniform(0, HOUR) if is_late else chance.uniform(free, starts - 30 * MINUTE)
            self.at(known, self.up, block, ends)
            self.at(starts + chance.choice((0, 0, chance.uniform(0, 3 * HOUR))), self.deliver, block)
            self.extend(block, ends)
            for _ in range(chance.choice((0, 0, 1, 2))):
                bought, ends = chance.uniform(max(known, ends - DAY) + 20 * MINUTE, ends - HOUR), ends + DAY
                self.at(bought, self.extend, block, ends)
                self.at(bought + chance.choice((-10 * MINUTE, MINUTE, HOUR, 12 * HOUR)), self.up, block, ends)
            free = ends

    def at(self, when, what, *given):
        heapq.heappush(self.events, (max(when, self.now), next(self.order), what, given))

    def run(self):
        while self.events:
            self.now, _, what, given = heapq.heappop(self.events)
            what(*given)

    def time(self):
        return self.now

    monotonic = time

    def does(self, what):
        self.idle[self.doing].append(self.now - self.since)
        self.doing, self.since = what, self.now

    def deliver(self, block):
        self.block = block
        self.does("start" if "start" in self.actions else "late")
        self.size(self.desired, "late")

    def extend(self, block, ends):
        block.ends, self.ends = ends, self.ends + 1
        self.at(ends - 40 * MINUTE + self.chance.uniform(0, 2) * MINUTE, self.eks_drains, block, ends)
        self.at(ends - (60 if self.is_ultraserver else 30) * MINUTE, self.ec2_ends, block, ends)

    def eks_drains(self, block, ends):
        if block.ends == ends:
            self.size(0, "aws")
        elif not self.moves_action:
            self.size(0, "old action")
            self.at(self.now + self.chance.uniform(5, 60) * MINUTE, self.size, self.nodes, "")  # a person: trn scale

    def ec2_ends(self, block, ends):
        if block.ends == ends:
            self.lost += self.process is not None
            self.block, self.process, self.joined = None, None, False
            self.does("aws")

    def size(self, nodes, why):
        has_begun, self.desired = bool(self.desired), nodes
        if nodes and self.block and self.doing in ("start", "late", "old action"):
            self.does("aws")
            self.at(self.now + self.chance.uniform(4, 9) * MINUTE, self.join, self.block)
        elif not nodes and has_begun and self.block:
            self.does(why)
            self.joined = False
            if self.process:
                self.at(self.now + self.chance.uniform(1, MINUTE), self.process._on_signal)
                self.look(self.now + MINUTE)

    def join(self, block):
        if self.desired and self.block is block:
            self.joined = True
            self.does("start")
            self.at(self.now + self.chance.uniform(5, 30), self.begin)

    def up(self, block, ends):
        if self.known and (moment(block.starts), moment(ends)) < (self.known.starts, self.known.ends):
            return  # the config is newer
        self.known = BlockTimes(moment(block.starts), moment(ends), self.nodes, self.is_ultraserver)
        self.actions = {each.key: each for each in self.known.actions(moment(self.now))}
        for each in self.actions.values():
            self.at(each.at.timestamp() + self.chance.uniform(0, 2) * MINUTE, self.act, each)
        os.environ.setdefault(CAPACITY_ENDS, utc_text(moment(ends)))
        self.at(self.now + self.chance.uniform(0, 2) * MINUTE, self.write, utc_text(moment(ends)))
        if self.known.first_size(moment(self.now)) and not self.desired:
            self.size(self.nodes, "")  # trn scale

    def act(self, action):
        if self.actions.get(action.key) is action:
            del self.actions[action.key]
            is_over = self.block is not None and self.known.ends == moment(self.block.ends)
            self.size(action.nodes, "aws" if is_over else "late")

    def write(self, text):
        self.file.write_text(text)
        self.look(self.now + stopping.LOOK_SECONDS)

    def begin(self):
        if self.joined and not self.process:
            self.does("train")
            self.process, self.began = Stopping(), self.now
            self.look(self.now)

    def look(self, when):
        """Ask at the first end of a step from then on: between two of these moments the answer is the same."""
        if self.process:
            self.at(self.began + self.step * max(-((self.began - when) // self.step), 1), self.ask, self.process)

    def ask(self, process):
        if process is self.process and process.reason:
            self.block.steps += round((self.now - self.began) / self.step)
            self.process = None
            self.does("aws" if self.joined else self.doing)
            self.at(self.now + self.save, self.restart)
        elif process is self.process and process._ends < float("inf"):
            self.look(process._ends - process._margin + 1)

    def restart(self):
        if self.joined:
            self.does("end")
            self.at(self.now + self.chance.uniform(1, 3) * MINUTE, self.begin)


def simulate(calendars):
    """Yield each calendar after its end."""
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(calendars):
            made = Calendar(random.Random(seed), Path(folder, str(seed)))
            margin = str(_ULTRASERVER_MARGIN_SECONDS) if made.is_ultraserver else ""
            of_pod = {CAPACITY_FILE: str(made.file), CAPACITY_MARGIN: margin}
            with mock.patch.dict(os.environ, of_pod), mock.patch.object(stopping, "time", made):
                os.environ.pop(CAPACITY_ENDS, None)
                made.run()
            yield made


def main(calendars=1000):
    """Print the figures."""
    made = [*simulate(calendars)]
    blocks = [block for each in made for block in each.blocks]
    trained = f"{sum(each.steps for each in blocks)} steps, {sum(each.lost for each in made)} trainings ended unsaved"
    sys.stdout.write(f"{calendars} calendars, {len(blocks)} blocks, {trained}\n")
    for cause in ("start", "end", "late", "old action"):
        minutes = [seconds / MINUTE for each in made for seconds in each.idle[cause]]
        each, most = sum(minutes) / len(blocks), max(minutes)
        sys.stdout.write(f"idle, {cause}: {each:.2f} minutes of a node in a block, at most {most:.1f} at a time\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
