from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check(
        "IQ1_S",
        raw("IQ1_S", {0: "003c", 2: "01", 7: "ff", 34: "00b0 3800"}),
        {range(32): -7.875, 0: 6.125, range(40, 48): 1.125},
        rest=-0.875,
    )


def test_equals_the_gguf_package() -> None:
    agrees("IQ1_S")
