from taskloom.server.read.overview.service import COSTS, Pace


def test_a_look_takes_a_tenth_of_the_time_after_changes_and_a_five_hundredth_without():
    pace = Pace(every_s=0.5)
    pace.looked(100.0, cost_s=0.2)
    assert (pace.next_at, pace.at_latest) == (102.0, 200.0)
    pace.asked(102.0)  # nothing had changed
    assert (pace.next_at, pace.at_latest) == (102.5, 200.0)
    cheap = Pace(every_s=0.5)
    cheap.looked(100.0, cost_s=0.01)
    assert (cheap.next_at, cheap.at_latest) == (100.5, 115.0)


def test_a_look_that_had_to_wait_does_not_delay_the_next_one():
    pace = Pace(every_s=0.5)
    pace.looked(100.0, cost_s=0.02)
    pace.looked(101.0, cost_s=3.0)
    assert (pace.next_at, pace.at_latest) == (101.5, 116.0)
    for _ in range(COSTS - 1):
        pace.looked(110.0, cost_s=0.1)  # the work itself has grown
    assert pace.next_at == 111.0
