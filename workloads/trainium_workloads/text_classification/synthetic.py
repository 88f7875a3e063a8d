"""Reviews that nobody wrote: made from a seed, so that training can be tried without data, and the labels be learnt."""

import random

THINGS = ("book", "album", "camera", "kettle", "lamp", "novel", "game", "tripod", "charger", "blender")
GOOD = ("wonderful", "excellent", "reliable", "charming", "superb", "delightful")
BAD = ("awful", "broken", "useless", "boring", "disappointing", "flimsy")
PRAISE = ("I would buy it again", "worth every penny", "my family loves it")
BLAME = ("I sent it back", "a waste of money", "it failed within a week")
NEUTRAL = (
    "It came in a brown box",
    "I ordered it on a Monday",
    "My sister has the older one",
    "The manual has forty pages",
    "It is a little heavier than it looks",
)


def review(seed: int, number: int) -> dict[str, int | str]:
    """Return one review with the columns of Amazon Polarity: ``label`` (0 or 1), ``title`` and ``content``; the same
    for the same seed and number."""
    chosen = random.Random(f"{seed}/{number}")
    label = chosen.randrange(2)
    thing, words, says = chosen.choice(THINGS), (BAD, GOOD)[label], (BLAME, PRAISE)[label]
    sentences = [
        f"This {thing} is {chosen.choice(words)} and {chosen.choice(words)}",
        chosen.choice(says),
        *chosen.sample(NEUTRAL, chosen.randrange(len(NEUTRAL))),
    ]
    chosen.shuffle(sentences)
    return {"label": label, "title": f"About this {thing}", "content": ". ".join(sentences) + "."}
