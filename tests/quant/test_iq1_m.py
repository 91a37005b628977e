from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check(
        "IQ1_M",
        raw("IQ1_M", {0: "01", 5: "ff", 32: "08 00 70", 48: "0b00 0000 00c0 0030"}),
        {range(16): -6.125, range(8): -7.875, 0: 6.125, range(16, 32): -2.625, range(40, 48): 1.125},
        rest=-0.875,
    )


def test_equals_the_gguf_package() -> None:
    agrees("IQ1_M")
