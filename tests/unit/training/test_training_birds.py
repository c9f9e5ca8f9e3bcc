from perdure_embedded.birds import draw_bird_dataset


def drawn(folder, **options):
    draw_bird_dataset(folder, images=20, size_px=64, **options)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    first = drawn(tmp_path / "1")
    assert drawn(tmp_path / "2") == first
    assert drawn(tmp_path / "3", seed=8) != first


def test_both_classes_are_in_both_splits_and_boxes_lie_inside(tmp_path):
    files = drawn(tmp_path)
    assert len([name for name in files if name.startswith("images/train/")]) == 16
    assert len([name for name in files if name.startswith("images/val/")]) == 4
    for split in ("train", "val"):
        rows = [
            [float(field) for field in row.split()]
            for name, data in files.items()
            if name.startswith(f"labels/{split}/")
            for row in data.decode().splitlines()
        ]
        assert {row[0] for row in rows} == {0, 1}
        for _, x, y, width, height in rows:
            assert 0 <= x - width / 2 < x + width / 2 <= 1
            assert 0 <= y - height / 2 < y + height / 2 <= 1
