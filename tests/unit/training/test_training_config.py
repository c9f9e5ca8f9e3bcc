import hashlib

import pytest

from perdure.errors import InvalidConfig
from perdure.training.config import TrainConfig


def problems_of(pairs):
    with pytest.raises(InvalidConfig) as caught:
        TrainConfig.from_pairs(pairs)
    return {problem["key"]: problem for problem in caught.value.details["problems"]}


def test_text_from_a_command_line_is_read():
    config = TrainConfig.from_pairs({"epochs": "7", "cos_lr": "true", "lr0": "0.003"})
    assert (config.epochs, config.cos_lr, config.lr0) == (7, True, 0.003)


def test_all_problems_are_listed_at_once():
    found = problems_of({"epoch": 3, "imgsz": 100, "batch": 0, "mosaic": "much"})
    assert set(found) == {"epoch", "imgsz", "batch", "mosaic"}


def test_an_unknown_name_is_answered_with_the_nearest():
    assert problems_of({"epoch": 3})["epoch"]["nearest"] == "epochs"
    assert problems_of({"learning": 3})["learning"]["problem"] == "is not a known name"
    assert problems_of({"zzzzzz": 3})["zzzzzz"]["nearest"] is None


@pytest.mark.parametrize("name", ["yolo11n.pt", "/etc/yolo11n.yaml", "yolo11n-seg.yaml"])
def test_a_model_is_a_known_detector_and_never_a_file(name):
    assert problems_of({"model": name})["model"]["nearest"] == "yolo11n.yaml"


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("yolov99.yaml", "yolov8{n,s,m,l,x}.yaml"),
        ("yolov8", "yolov8{n,s,m,l,x}.yaml"),
        ("yolo11.yaml", "yolo11{n,s,m,l,x}.yaml"),
    ],
)
def test_a_model_without_its_size_is_answered_with_its_family(name, family):
    assert problems_of({"model": name})["model"]["nearest"] == family


def test_an_image_size_is_a_multiple_of_the_stride():
    assert problems_of({"imgsz": "100"})["imgsz"]["nearest"] == "96"


@pytest.mark.parametrize(
    ("key", "value"),
    [("lr0", "nan"), ("lr0", "inf"), ("batch", -1), ("device", "gpu"), ("workers", "many")],
)
def test_values_out_of_range_are_refused(key, value):
    assert set(problems_of({key: value})) == {key}


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("lr0", "abc", "is not a number"),
        ("lr0", "nan", "is not a finite number"),
        ("lr0", "0", "is not above 0"),
        ("momentum", "1", "is not below 1"),
        ("epochs", "0", "is below 1, the least that is allowed"),
        ("epochs", "20000", "is above 10000, the most that is allowed"),
        ("epochs", "2.5", "is not a whole number"),
        ("cos_lr", "perhaps", "is neither true nor false"),
        ("optimizer", "Adam", "is neither AdamW nor SGD"),
        ("workers", "many", "is neither auto nor a whole number from 0 to 64"),
        ("workers", "-1", "is neither auto nor a whole number from 0 to 64"),
        (
            "device",
            "cuda",
            "is none of auto, cpu and cuda:N, with the number N of a GPU from 0 to 99",
        ),
        ("model", 3, "is not text"),
    ],
)
def test_a_problem_is_told_in_words(key, value, problem):
    assert problems_of({key: value})[key]["problem"] == problem


@pytest.mark.parametrize("key", TrainConfig.keys())
def test_every_setting_is_described_in_a_line_with_its_range(key):
    field = TrainConfig.model_fields[key]
    assert field.description
    assert "\n" not in field.description
    for limit in (getattr(found, name, None) for found in field.metadata for name in ("ge", "le")):
        assert limit is None or f"{limit:.12g}" in field.description, limit


def test_it_is_said_that_training_starts_from_random_weights():
    assert "random weights" in TrainConfig.model_fields["model"].description


@pytest.mark.parametrize(("asked", "epochs", "effective"), [(3, 3, 1), (3, 30, 3), (0, 3, 0)])
def test_warm_up_takes_a_third_of_the_epochs_at_most(asked, epochs, effective):
    config = TrainConfig.from_pairs({"epochs": epochs, "warmup_epochs": asked})
    assert config.effective_warmup_epochs == effective


def test_values_that_contradict_each_other_are_refused():
    found = problems_of({"epochs": 2, "warmup_epochs": 3, "close_mosaic": 5, "lr0": 0.5})
    assert set(found) == {"warmup_epochs", "close_mosaic", "lr0"}


def test_defaults_follow_the_optimizer_and_the_length():
    sgd = TrainConfig(optimizer="SGD", epochs=2)
    assert (sgd.lr0, sgd.momentum) == (0.01, 0.937)
    assert (sgd.warmup_epochs, sgd.close_mosaic) == (2 / 3, 2)
    assert TrainConfig(batch=64).nbs == 64


def test_the_canonical_form_reads_back_and_its_hash_is_sha256():
    config = TrainConfig.from_pairs({"epochs": 2, "optimizer": "SGD"})
    text = config.canonical()
    assert TrainConfig.from_canonical(text) == config
    assert text.startswith('{"batch":16,"box":7.5,')
    assert config.hash == hashlib.sha256(text.encode()).hexdigest()


def test_another_value_gives_another_hash():
    assert TrainConfig(seed=1).hash != TrainConfig(seed=2).hash


def test_damaged_canonical_text_is_refused():
    with pytest.raises(InvalidConfig):
        TrainConfig.from_canonical('{"epochs": "many"}')


def test_the_configuration_needs_no_torch():
    import subprocess
    import sys

    code = "import sys, perdure.training.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_key_that_is_no_text_is_refused_like_any_unknown_one():
    with pytest.raises(InvalidConfig, match="not a known name"):
        TrainConfig.from_pairs({"\ud800": 1})


def test_a_setting_that_came_later_leaves_the_hashes_of_recorded_configurations_alone():
    recorded = (
        '{"batch":16,"box":7.5,"close_mosaic":10,"cls":0.5,"cos_lr":false,"degrees":0,'
        '"device":"auto","dfl":1.5,"epochs":50,"fliplr":0.5,"flipud":0,"hsv_h":0.015,'
        '"hsv_s":0.7,"hsv_v":0.4,"imgsz":320,"lr0":0.002,"lrf":0.01,"mixup":0,'
        '"model":"yolo11n.yaml","momentum":0.9,"mosaic":1,"nbs":16,"optimizer":"AdamW",'
        '"patience":20,"perspective":0,"scale":0.5,"seed":0,"shear":0,"translate":0.1,'
        '"val_ratio":0.2,"warmup_epochs":3,"weight_decay":0.0005,"workers":"auto"}'
    )
    config = TrainConfig.from_canonical(recorded)
    assert config == TrainConfig.from_pairs({"cache_samples": "false"})
    assert config.canonical() == recorded
    assert config.hash == "f20656a8e0e601a5ae3ee7fb3f86a6db4731b67fa4d8715af2b0975618994199"
    keeping = TrainConfig.from_pairs({"cache_samples": "true"})
    assert TrainConfig.from_canonical(keeping.canonical()) == keeping
    assert keeping.hash != config.hash
