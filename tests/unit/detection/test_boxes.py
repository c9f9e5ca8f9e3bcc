"""Overlap of boxes."""

import numpy as np
import pytest
import torch
import torchvision

from perdure.detection.boxes import box_iou


def test_overlaps_worked_out_by_hand():
    first = np.array([[0.0, 0.0, 10.0, 10.0]])
    others = np.array(
        [
            [0.0, 0.0, 10.0, 10.0],  # the same
            [5.0, 0.0, 15.0, 10.0],  # 50 shared of 150
            [2.0, 2.0, 4.0, 7.0],  # inside: 10 of 100
            [10.0, 0.0, 20.0, 10.0],  # touching
            [30.0, 30.0, 40.0, 40.0],  # apart
        ]
    )

    assert box_iou(first, others)[0].tolist() == pytest.approx([1, 1 / 3, 0.1, 0, 0])


def test_boxes_without_an_area_overlap_nothing_not_even_themselves():
    boxes = np.array([[5.0, 5.0, 5.0, 5.0], [0.0, 0.0, 10.0, 10.0], [8.0, 8.0, 2.0, 2.0]])

    overlaps = box_iou(boxes, boxes)

    assert overlaps.tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_overlaps_are_those_of_torchvision():
    random = np.random.default_rng(1)
    corners = random.uniform(0, 80, (60, 2))
    boxes = np.concatenate((corners, corners + random.uniform(1, 50, (60, 2))), axis=1)

    theirs = torchvision.ops.box_iou(torch.from_numpy(boxes[:20]), torch.from_numpy(boxes[20:]))

    assert box_iou(boxes[:20], boxes[20:]) == pytest.approx(theirs.numpy(), abs=1e-12)
