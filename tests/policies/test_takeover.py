"""When a leader takes over from a sampler in the service, and when the sampler is tried again."""

from __future__ import annotations

import numpy as np

from bothworlds.core import Block
from bothworlds.policies.all_weather import AllWeather
from bothworlds.policies.takeover import Situation, next_step, wake_round


class Ahead:
    def __init__(self, ahead):
        self.ahead = ahead

    def leader_plays_alone(self, blocks):
        return self.ahead


def test_the_rule_of_a_takeover():
    some = [Block(5.0, 6.0, 50, np.zeros((2, 1)), np.zeros((2, 1)))]
    assert next_step(Ahead(False), Situation(100, 0, 0, 0), some) == "go on"
    assert next_step(Ahead(True), Situation(100, 0, 0, 0), some) == "leader takes over"
    assert next_step(Ahead(True), Situation(149, 0, 150, 9), some) == "go on"
    assert next_step(Ahead(False), Situation(150, 0, 150, 0), some) == "sampler wakes"
    assert next_step(Ahead(False), Situation(100, 4, 0, 5), some) == "visitors changed"
    assert next_step(Ahead(False), Situation(100, 5, 0, 5), some) == "go on"
    assert next_step(Ahead(False), Situation(401, 4, 0, 5), some) == "go on"  # the comparison has begun recently
    assert wake_round(101) == 152
    assert not AllWeather().leader_plays_alone(some)
