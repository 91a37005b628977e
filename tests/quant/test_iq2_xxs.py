from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check("IQ2_XXS", raw("IQ2_XXS", {0: "003c", 2: "01", 6: "01000030"}), {range(32): 7.0, 0: -37.625, 7: -7.0}, rest=1.0)


def test_equals_the_gguf_package() -> None:
    agrees("IQ2_XXS")
