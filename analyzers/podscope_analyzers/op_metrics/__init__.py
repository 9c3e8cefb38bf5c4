"""Operations on hosts and devices: their times, rates and shares."""
