from __future__ import annotations

from localllm.generation.speculation.venture import Asked, Venture


def fresh() -> Venture:
    venture = Venture()
    venture.begin(alone=True)
    return venture


def play(venture: Venture, tokens: int, gain: float, lag: float = 0.0) -> tuple[int, float]:
    """A text of so many tokens; steps with the source gain or lose. How often it was asked, and what all steps gained."""
    asked, made = 0, 0
    while made < tokens:
        if venture.wanted(lag):
            asked += 1
            venture.saw(2, 2 - gain, Asked(0.0, 2.0))
            made += 2
        else:
            venture.saw(1, 1.0)
            made += 1
    return asked, venture.ahead


def test_what_earns_is_asked_always() -> None:
    asked, ahead = play(fresh(), 400, 0.3)
    assert asked == 200 and ahead > 50


def test_what_loses_is_given_up_soon_and_tried_seldom() -> None:
    asked, ahead = play(fresh(), 1000, -0.3)
    assert 3 <= asked <= 40
    assert ahead > -0.01 * 1000 - 4


def test_a_text_that_changes_is_noticed() -> None:
    venture = fresh()
    play(venture, 300, -0.3)
    assert play(venture, 600, 0.5)[0] > 150


def test_another_text_begins_without_debts() -> None:
    venture = fresh()
    venture.saw(1, 50.0, Asked(49.0, 1.0))
    assert venture.ahead == -49
    venture.begin(alone=True)
    assert venture.ahead == 0


def test_an_investment_has_to_come_back() -> None:
    venture = fresh()
    assert venture.wanted(1.0) and not venture.wanted(5.0)
    play(venture, 20, 0.3)
    assert venture.wanted(5.0) and not venture.wanted(200.0)
    play(venture, 2000, 0.3)
    assert venture.wanted(200.0)


def test_an_investment_is_not_a_loss_of_its_step() -> None:
    venture = fresh()
    venture.saw(2, 12.0, Asked(10.5, 2.0))
    assert venture.wanted(0.0)


def test_how_many_steps_the_source_is_asked_in_a_row() -> None:
    venture = fresh()
    before = venture.run
    for _ in range(20):
        venture.saw(2, 1.5, Asked(0.0, 2.0))
        venture.saw(1, 1.0)
    assert venture.run < before / 4
    for _ in range(50):
        venture.saw(2, 1.5, Asked(0.0, 2.0))
    assert venture.run == 50
