from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check(
        "IQ3_S",
        raw("IQ3_S", {0: "003c", 2: "01", 66: "02", 74: "05", 106: "53"}),
        {range(32): 7.0, range(32, 64): 11.0, 0: -21.0, 2: -7.0, 4: 49.0, 5: 35.0, 6: 63.0, 7: 35.0},
        rest=1.0,
    )


def test_equals_the_gguf_package() -> None:
    agrees("IQ3_S")
