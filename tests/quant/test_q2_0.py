from tests.quant.oracle import check, raw


def test_block_written_by_hand() -> None:
    check("Q2_0", raw("Q2_0", {0: "0038", 2: "e4", 17: "80"}), {1: 0.0, 2: 0.5, 3: 1.0, 63: 0.5}, rest=-0.5)
