from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check(
        "IQ2_S",
        raw("IQ2_S", {0: "003c", 2: "01", 6: "ff", 34: "05", 67: "03", 74: "53"}),
        {range(16): 7.0, range(16, 32): 11.0, 0: -37.625, 2: -7.0, range(32, 40): 5.375},
        rest=1.0,
    )


def test_equals_the_gguf_package() -> None:
    agrees("IQ2_S")
