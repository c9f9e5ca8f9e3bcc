from perdure.training.order import BatchPlan, epoch_order, sample_seed, steps_per_epoch

IDS = [f"images/{number}.jpg" for number in range(10)]


def plan(**options):
    return list(BatchPlan(IDS, seed=3, batch=4, epochs=3, **options))


def test_each_epoch_sees_each_sample_once_in_an_order_of_its_own():
    first, second = epoch_order(3, 0, IDS), epoch_order(3, 1, IDS)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_the_order_depends_on_the_seed_and_not_on_the_order_of_the_data_set():
    names = [IDS[index] for index in epoch_order(3, 0, IDS)]
    backwards = IDS[::-1]
    assert [backwards[index] for index in epoch_order(3, 0, backwards)] == names
    assert [IDS[index] for index in epoch_order(4, 0, IDS)] != names


def test_seeds_of_samples_differ_by_seed_epoch_and_sample():
    seeds = {
        sample_seed(seed, epoch, sample_id)
        for seed in (0, 1)
        for epoch in (0, 1)
        for sample_id in IDS
    }
    assert len(seeds) == 40
    assert sample_seed(0, 1, IDS[0]) == sample_seed(0, 1, IDS[0])


def test_a_plan_from_a_later_step_is_the_rest_of_the_whole_plan():
    whole = plan()
    assert len(whole) == 3 * steps_per_epoch(10, 4) == 9
    assert [len(batch) for batch in whole] == [4, 4, 2] * 3
    assert plan(epoch=1, step=2) == whole[5:]
    assert plan(epoch=1, step=3) == whole[6:]  # all steps done, not yet validated
    assert plan(epoch=3) == []
