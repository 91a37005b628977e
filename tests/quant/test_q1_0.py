from tests.quant.oracle import check, raw


def test_block_written_by_hand() -> None:
    check("Q1_0", raw("Q1_0", {0: "0038", 2: "05", 17: "80"}), {0: 0.5, 2: 0.5, 127: 0.5}, rest=-0.5)
